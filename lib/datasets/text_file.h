#pragma once
#include "datasets/data_files.h"
