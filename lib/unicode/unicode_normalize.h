#pragma once
#include "unicode/unicode.h"
