#pragma once
#include "convert/conversion.h"
