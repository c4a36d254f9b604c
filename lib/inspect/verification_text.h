#pragma once
#include "inspect/verification.h"
