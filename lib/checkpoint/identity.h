#pragma once
#include "checkpoint/model_dir.h"
