#pragma once
#include "state/state_folder.h"
