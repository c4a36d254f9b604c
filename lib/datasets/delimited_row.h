#pragma once
#include "datasets/dataset_reader.h"
