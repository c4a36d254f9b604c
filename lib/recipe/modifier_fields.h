#pragma once
#include "recipe/grammar.h"
