#pragma once
#include "engines/verify.h"
