#pragma once
#include "checkpoint/npz.h"
