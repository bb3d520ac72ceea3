/** What the example agent says, so that a client can check that it got every word once. */
export const ANSWER = [
  'A train leaves the coast before sunrise and follows the river inland.',
  'For the first hour there is nothing but fog, then the hills appear one after another, each a little higher than the last.',
  'At the third bridge the line turns north; a signal box stands there, painted green, with geraniums in every window.',
  'The keeper writes the time of each train in a book.',
  'When the telegraph fails, and in winter it often does, the book is the only thing that knows which trains have passed.',
  'Whoever comes back after a storm opens it at the last line they remember and reads on from there.',
  'Nothing is told twice, nothing is left out, and nobody has to guess.',
  'By noon the fog is gone, the line is clear to the mountains, and the next entry is already dry.',
].join(' ');
