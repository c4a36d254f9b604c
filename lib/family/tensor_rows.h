#pragma once
#include "family/roles.h"
