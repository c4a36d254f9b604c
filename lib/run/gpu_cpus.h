#pragma once
#include "run/rank_settings.h"
