#pragma once
#include "ranks/exchanged_layers.h"
