/** What is there on the first visit, so that searching shows something at once. */

export const EXAMPLE_NAME = "A small household almanac";

export const EXAMPLE_QUERIES = [
  "my internet is not working",
  "how do plants make their food",
  "first aid for insects",
  "overnight trip by rail",
  "saving money on heating",
];

export const EXAMPLE_TEXT = `# A small household almanac

If the light on the router blinks red, unplug it, wait half a minute and plug it in again. Most connections come back by themselves within five minutes; if yours does not, call the provider.

Leaves catch sunlight and use it to turn carbon dioxide and water into sugar. This is why a seedling on a dark shelf grows pale and long: it is looking for light.

A wasp sting hurts, but it is seldom dangerous. Cool the spot with ice, take off rings before the finger swells, and see a doctor at once if breathing becomes difficult.

The night train from Vienna leaves at ten in the evening and arrives in Rome after breakfast. Berths with two beds are booked out early in summer.

Turn the radiators down by one degree and you will use about six percent less fuel. Close the shutters after dark, and do not let furniture stand in front of the heaters.

Knead the dough for ten minutes, let it rise under a cloth until it has doubled, and bake it in a very hot oven. It is done when the bottom sounds hollow.

Before you sign a rental contract, read how long the notice period is and who pays for repairs. Take photographs of every room on the day you get the keys.

Cats sleep up to sixteen hours a day. If an old cat suddenly drinks a lot of water, its kidneys should be looked at.

The moon's pull raises the water on two sides of the earth, which is why most coasts see high tide twice a day.

Write to the bank at once when your card is missing. Payments made after that are no longer your loss.

Wool is washed cold and never wrung out. Lay the jumper flat on a towel to dry, or it will grow longer than you are.

To keep a bicycle chain quiet, wipe it with a dry rag and give every link a single drop of oil; too much only collects sand.

Children under twelve need no ticket for the museum, and on the first Sunday of the month nobody does.
`;
