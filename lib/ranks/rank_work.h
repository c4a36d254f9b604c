#pragma once
#include "ranks/rank_session.h"
