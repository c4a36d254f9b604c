#pragma once
#include "report/axis.h"
