#pragma once
#include "run/subject.h"
