#pragma once
#include "state/run_state.h"
