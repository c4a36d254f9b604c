#pragma once
#include "run/evaluation.h"
