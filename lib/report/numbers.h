#pragma once
#include "report/markup.h"
