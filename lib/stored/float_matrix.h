#pragma once
#include "stored/coded_matrix.h"
