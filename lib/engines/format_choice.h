#pragma once

#include "engines/engine_verdicts.h"
