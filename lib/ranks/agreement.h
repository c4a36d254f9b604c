#pragma once
#include "ranks/communicator.h"
