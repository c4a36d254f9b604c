#pragma once
#include "recipe/presets.h"
