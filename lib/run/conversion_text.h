#pragma once
#include "run/convert_checkpoint.h"
