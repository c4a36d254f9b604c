#pragma once
#include "quant/module_target.h"
