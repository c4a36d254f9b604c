#pragma once
#include "run/eval_variants.h"
