#pragma once
#include "state/resumable_forward.h"
