#pragma once
#include "run/command_paths.h"
