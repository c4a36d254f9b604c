#pragma once
#include "datasets/chat_messages.h"
