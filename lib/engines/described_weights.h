#pragma once
#include "engines/loaded_checkpoint.h"
