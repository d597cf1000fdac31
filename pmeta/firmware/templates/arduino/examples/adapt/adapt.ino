// Adapts the model to the support samples of samples.c and prints what it then sees in others.
#include <board.h>
#include <example.h>

void setup() {
  Serial.begin(115200);
  while (!Serial && millis() < 5000) {
  }
  board_start();
  example();
}

void loop() {}
