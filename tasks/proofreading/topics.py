"""What the sentences are about: a few hundred topics and situations of every day, one between commas."""

from __future__ import annotations

_TOPICS = """
a late train, a missed flight, a flat tire, a traffic jam, a parking ticket, learning to drive, a used car,
riding a bike to work, a broken elevator, the school bus, a road trip, a rental car, the subway, a lost
ticket, a delayed package, moving to another city, a noisy neighbor, a new roommate, the landlord, a leaking
roof, painting the kitchen, a broken window, a new couch, the washing machine, a power cut, a cold
apartment, cleaning the garage, a yard sale, the recycling bin, a lost key, a garden fence, planting
tomatoes, cutting the grass, raking leaves, a bird feeder, an apple tree, bees in the garden, weeds, a
greenhouse, roses, baking bread, a birthday cake, a pot of soup, breakfast in bed, packed lunches, a family
recipe, cooking for ten people, burnt toast, a pizza night, strawberry jam, a cup of coffee, green tea, a
picnic, leftovers, a vegetarian dinner, grocery shopping, the farmers market, a restaurant bill, a rude
waiter, a food truck, an ice cream shop, a dinner reservation, a wedding, a baby shower, a funeral, an
anniversary, a graduation, a surprise party, a costume party, New Year's Eve, Thanksgiving dinner, a
Christmas tree, Easter eggs, Halloween candy, a gift card, Mother's Day, Father's Day, Valentine's Day, a
family reunion, a twin brother, a little sister, a new baby, a teenage son, a daughter's first concert,
grandparents, a cousin from abroad, a stepfather, an aunt's house, the babysitter, bedtime, a lost tooth,
toys on the floor, the playground, homework, a school play, a math test, a spelling bee, the science fair, a
field trip, a report card, the school library, a history paper, a study group, a college application, a
scholarship, a dorm room, an online course, learning Spanish, a language exchange, the piano, violin
lessons, a school band, singing in a choir, a concert ticket, an old record, a street musician, dancing
lessons, a painting class, an art museum, drawing, photography, a broken camera, a photo album, a poem, a
mystery novel, a book club, a library card, a comic book, a newspaper article, a podcast, a documentary, a
movie theater, a bad movie, a TV series, a video game, a board game, a card trick, chess, a crossword
puzzle, a football game, the soccer team, a tennis match, basketball practice, a marathon, morning runs, the
gym, yoga, swimming lessons, a sailing trip, fishing with dad, skiing, ice skating, a hockey game, rock
climbing, a hiking trail, a camping trip, a tent in the rain, a campfire, mosquito bites, a sunburn, the
beach, seashells, a lighthouse, an island, a waterfall, a desert, a volcano, a rainforest, a national park,
a cave, a river boat, the first snow, a snowman, a thunderstorm, fog, a heat wave, autumn leaves, a rainy
Sunday, a rainbow, the sunrise, a starry night, a shooting star, the sun, planets, a space station, gravity,
the ocean, tides, whales, sharks, penguins, polar bears, elephants, owls, spiders, ants, butterflies, frogs,
horses, cows, chickens on a farm, a new puppy, a dog at the vet, walking the dog, a kitten, a goldfish, a
hamster, a parrot, the animal shelter, a headache, a sore throat, the flu, a broken arm, a toothache, the
dentist, an eye exam, new glasses, a blood test, a hospital visit, a pharmacy, vitamins, back pain, an
allergy, quitting smoking, losing weight, a healthy breakfast, sleep, stress, meditation, a long weekend, a
lazy afternoon, a bad dream, a secret, a promise, a lie, an apology, jealousy, a first date, a breakup, a
best friend, an old friend, a pen pal, a stranger on a train, a misunderstanding, loneliness, patience,
courage, luck, growing old, a retirement party, a new job, a job offer, a first day at work, a difficult
boss, a promotion, a business trip, a deadline, a presentation, a broken printer, a conference call, a team
lunch, overtime, a pay cut, a cover letter, an internship, a small business, a customer, an invoice, a bank
account, a credit card, a loan, taxes, an insurance claim, a budget, saving for a house, a yard full of
snow, a donation, volunteering, a neighborhood meeting, an election, a protest, the city council, a new
park, a construction site, the police, a fire alarm, a stolen bike, a lost wallet, a lost child, a car
accident, first aid, a smoke detector, a new phone, a cracked screen, a dead battery, a slow computer, a
forgotten password, a video call, a group chat, an email to the wrong person, social media, spam calls, a
smart watch, an old radio, a vacuum cleaner, a sewing machine, a winter coat, new shoes, a wedding dress, a
haircut, laundry, ironing a shirt, a torn jacket, a lost glove, a suitcase, a passport, a hotel room, a
hostel, a tour guide, a map, jet lag, a souvenir, a postcard, a foreign city, Paris, New York, London,
Tokyo, Italy, Mexico, Canada, Egypt, Australia, a small town, a village, the countryside, a castle, a museum
of history, a bridge, a skyscraper, a market square, a church, a cemetery, an old factory, a farm, a
windmill, a vineyard, a bakery, a bookstore, a toy store, a hardware store, a flea market, a barber, a
tailor, a carpenter, a plumber, an electrician, a nurse, a firefighter, a pilot, a taxi driver, a mail
carrier, a librarian, a gardener, a teacher, a lawyer, a scientist, a famous singer, a magician, a clown, a
ghost story, a treasure map, a time machine, a robot, a dragon, a pirate ship, a haunted house, a fairy
tale, the circus, a balloon, a kite, a bicycle bell, an umbrella, a candle, a mirror, a clock, a wooden
chair, a blanket, a teapot, a pair of scissors, a hammer, a ladder, a bucket, a rope, a coin, a stamp, a
letter, a diary, a calendar, numbers, money, colors, the alphabet, electricity, magnets, glass, paper,
plastic, steel, salt, sugar, chocolate, cheese, rice, potatoes, bananas, mushrooms, pepper, milk, water,
ice, wind, fire, trees, mountains, rivers
"""

TOPICS = tuple(" ".join(topic.split()) for topic in _TOPICS.split(","))
