#pragma once
#include "run/model_session.h"
