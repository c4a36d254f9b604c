#pragma once
#include "report/checkpoint_drawings.h"
