#pragma once
#include "sweep/task_runner.h"
