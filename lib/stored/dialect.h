#pragma once
#include "stored/kv_scales.h"
