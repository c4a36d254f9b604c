#pragma once
#include "rewrite/smoothing.h"
