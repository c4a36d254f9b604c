#pragma once
#include "engines/scale_loading.h"
