#pragma once
#include "eval/gsm8k.h"
