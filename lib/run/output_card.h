#pragma once
#include "run/output.h"
