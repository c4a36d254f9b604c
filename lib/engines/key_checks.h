#pragma once
#include "engines/cache_choice.h"
