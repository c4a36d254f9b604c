#pragma once
#include "quant/damage_verdict.h"
