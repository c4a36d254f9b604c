#pragma once
#include "stored/read_model_config.h"
