#pragma once
#include "eval/generate.h"
