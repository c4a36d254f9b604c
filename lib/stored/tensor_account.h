#pragma once
#include "stored/weights.h"
