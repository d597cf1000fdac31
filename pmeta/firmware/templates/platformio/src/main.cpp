// Adapts the model to the support samples of samples.c and prints what it then sees in others.
#include "board.h"
#include "example.h"
#include <Arduino.h>

void setup()
{
    Serial.begin(115200);
    board_start();
    example();
}

void loop() {}
