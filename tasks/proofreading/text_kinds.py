"""What kinds of short text there are, each shown to the base by hand-written examples.

A kind is what one writes, then its examples: a topic on a line ending in a colon, and under it three texts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    what: str  # "You write WHAT."
    examples: tuple[tuple[str, str], ...]  # (topic, three texts, one a line)


_KINDS = """
# short text messages to a friend
running late:
The train is stuck, so I'm going to be ten minutes late. Please start without me!
The bus didn't come, so I'm walking now. Can you save me a seat?
Don't wait for me. I'll meet you there.
a new apartment:
We finally got the keys! You're invited to dinner as soon as there's a table.
It's small, but the kitchen has a big window and I love it.
Do you know anyone who could help us move a sofa on Saturday?
a lost phone:
I think I left my phone at your place last night. Could you check the couch?
If you're trying to call me, my phone is gone. Write to my e-mail instead.
They found it! It was under the seat of the taxi the whole time.

# short text messages to family
grandma's birthday:
Don't forget that Grandma's birthday is on Friday. She'd love a call from you.
We're all chipping in for a new armchair. Is twenty dollars okay for you?
Who's bringing the cake? Last year there were two.
the broken dishwasher:
The dishwasher isn't draining again. Could you call the repair man, Dad?
Please rinse your plates before you leave. There's no more room in the sink.
He says it's the pump, and it'll cost more than a new one.
picking up the kids:
I can't leave work before five. Could you pick up the kids today?
Their practice ends at four, and they're waiting at the side entrance.
Tell Emma that her lunch box is still in my car.

# short messages to colleagues at work
a moved meeting:
The meeting has been moved to Thursday at two. Does that work for you?
I won't be able to join before three, but you can start without me.
Please send me your slides by noon so I can put them together.
the new printer:
The new printer is in the hallway, next to the kitchen.
It's asking for a password that nobody seems to know. Who set it up?
Please don't use it for flyers. The ink is more expensive than you'd think.
a day off:
I'd like to take next Friday off. Is there anything that can't wait until Monday?
While I'm away, Maria will answer your questions about the budget.
You're right. I forgot to put it in the calendar.

# single lines of polite e-mails
an order that has not arrived:
I ordered two lamps three weeks ago, and they still haven't arrived.
Could you please let me know when I can expect the package?
Thank you for your quick reply and your help.
a job interview:
Thank you very much for taking the time to speak with me yesterday.
I'm available any day next week, except for Tuesday morning.
If you need anything else from me, please don't hesitate to ask.
the rent:
I transferred the rent for March this morning.
The heating in the bedroom hasn't worked since Sunday. When could someone come and look at it?
We'd be happy to stay for another year if the price doesn't change.

# reviews of shops, restaurants and products, in a sentence or two
a bakery:
Their bread is the best in town, and it's still warm at eight in the morning.
The staff were friendly, but we waited half an hour for two coffees.
I wouldn't go there on a Saturday. It's far too crowded.
headphones:
The sound is great for the price, but they're a little too tight for my ears.
Mine broke after three weeks, and the shop didn't want to take them back.
I've used them every day for a year and couldn't be happier.
a hotel by the sea:
Our room was clean and quiet, and you could see the water from the bed.
Breakfast was cold, and there weren't enough tables.
We'll definitely come back next summer.

# questions that people ask each other
cooking rice:
How much water do you need for a cup of rice?
Why does my rice always stick to the pot?
Is it better to rinse it before cooking?
learning the guitar:
How long does it take until your fingers stop hurting?
Did you teach yourself, or did you have lessons?
Which song would you learn first if you were me?
the weather:
Do you think it's going to rain tomorrow?
What's the weather like where you live?
Shouldn't we take an umbrella, just in case?

# lines of a diary
a long walk:
We walked along the river until it got dark, and nobody said a word.
My feet hurt, but I haven't slept this well in months.
I saw a heron today. It stood so still that I thought it wasn't real.
an argument:
I shouldn't have said that to her, and I knew it while I was saying it.
He called in the evening to apologize. We're fine again.
It's strange how small the reason looks the day after.
the first day of school:
She let go of my hand at the gate and didn't look back.
Their new teacher seems strict, but the children like her.
I cried in the car, and then I went to work.

# simple instructions
changing a light bulb:
Turn off the power before you touch the lamp.
Wait until the old bulb has cooled down, and then unscrew it.
If the new one doesn't light up, check whether it's screwed in tightly.
making tea:
Pour the hot water over the leaves and let them sit for three minutes.
Don't squeeze the bag, or your tea will taste bitter.
Add milk and sugar to taste.
feeding the cat:
Give her half a can in the morning and the other half at night.
Please make sure that there's always fresh water in her bowl.
If she doesn't eat, don't worry. She'll come back when she's hungry.

# small facts about the world
the moon:
The moon takes about a month to travel around the Earth.
It has no air and no weather, so footprints stay there for a very long time.
We always see the same side of it.
honey:
Bees make honey from the nectar of flowers.
Honey can be kept for many years if it stays dry.
A single bee makes less than a teaspoon of it in its whole life.
bridges:
A bridge has to carry its own weight as well as the cars on it.
Metal bridges grow a little longer in summer, because heat makes metal expand.
The first bridges were probably trees that had fallen across a stream.

# plans for the day or the week
a weekend in the city:
On Saturday morning we'll visit the market and have lunch near the harbor.
If it doesn't rain, we're going to rent bikes in the afternoon.
Our train home leaves at six, so let's meet at the station at half past five.
cleaning the house:
First I'll do the windows, and then the bathroom.
You could take the old magazines to the recycling bin while I'm vacuuming.
By noon we should be done, and then there's cake.
saving money:
I want to put aside fifty dollars every month.
From now on I'll bring my own lunch to work instead of buying it.
Next year we'd like to have enough for a trip to Spain.

# complaints
noise at night:
The people upstairs have been moving furniture since midnight.
It's three in the morning, and their dog won't stop barking.
We've asked them twice, but nothing has changed.
a wrong bill:
You charged me for two nights, although we only stayed for one.
I don't understand why the price is higher than it was on your website.
Please correct the bill and send me a new one.
slow internet:
My connection drops every evening around eight.
I've restarted the router several times, and it doesn't help.
I'm paying for more than I'm getting.

# invitations and answers to them
a barbecue:
We're having a barbecue on Sunday, and we'd love to see you there.
Thanks for the invitation! Should I bring a salad or something to drink?
I'm afraid I can't come because my sister's visiting that weekend.
a housewarming party:
Our boxes are finally unpacked, so it's time to celebrate.
Come any time after seven, and bring whoever you like.
I'd love to come, but I have to work until nine. Is that too late?
a movie night:
Do you want to watch a movie at my place tonight?
I'll make popcorn if you bring the drinks.
Sure, I'll be there at eight. Which one are we watching?

# directions on how to get somewhere
the train station:
Go straight ahead until you see the church, and then turn left.
It's about ten minutes on foot, or two stops on the bus.
You can't miss it. It's right across from the park.
our cabin:
Take the second exit after the gas station and follow the road into the woods.
There's no sign, so look for a red mailbox.
If you reach the lake, you've gone too far.
the dentist:
The entrance is behind the pharmacy, on the third floor.
Don't park in the yard, or they'll tow your car.
From the subway it's two blocks north.

# notes left on a table or a fridge
dinner in the oven:
Your dinner is in the oven. It only needs ten minutes.
Please turn the oven off when you're done.
I've already eaten, so take as much as you want.
the plumber:
The plumber is coming between nine and eleven. Somebody has to let him in.
Show him the leak under the sink, and ask what it'll cost.
The money is in the drawer.
watering the plants:
The plants on the balcony need water every evening.
The small one by the window doesn't like too much of it.
Thank you for looking after them while we're gone!

# opinions
working from home:
I get more done at home, but I miss talking to people at lunch.
It's great for parents, as long as there's a door they can close.
I don't think everyone should have to come back to the office.
paper books:
I'd rather read a real book than look at a screen.
They're heavy when you travel, and you can't read them in the dark.
There's nothing like the smell of an old book.
big cities:
There's always something to do, but it's hard to find a quiet place.
I couldn't live there, because it's too loud and too expensive.
You'll never be bored, even if you don't know anybody.

# what people say when they thank, comfort or congratulate somebody
passing an exam:
Congratulations! You've worked so hard for this!
I knew you could do it. Let's celebrate on Friday.
We're all very proud of you.
a sick friend:
I'm sorry to hear that you're not feeling well.
Don't worry about work. We'll take care of everything.
Get well soon, and let me know if you need anything from the store.
help with moving:
Thank you so much for your help on Saturday. We couldn't have done it without you.
Dinner is on us, whenever you have time.
You were right about the sofa. It didn't fit through the door.

# sentences from short stories
a storm at sea:
The wind had been rising since noon, and now the waves were higher than the boat.
Her father shouted something, but she couldn't hear him.
When the sun came up, the sea was as flat as a mirror.
an old house:
Nobody had lived in the house for thirty years, yet there was a light in the kitchen.
He knocked twice, then pushed the door open.
The stairs creaked under their feet as they climbed to the attic.
a lost dog:
Every evening the boy went to the park and called its name.
On the fifth day, the dog came back with a collar that wasn't its own.
She didn't ask where it had been.

# advice
sleeping better:
Try to go to bed at the same time every night.
You should leave your phone in another room.
If you can't fall asleep, get up and read for a while.
a first car:
Don't buy the first one you see.
Ask somebody who knows about engines to go with you.
It's better to have an old car that's been cared for than a new one that hasn't.
asking for a raise:
Write down what you've done this year before you talk to your boss.
Choose a quiet day, and don't compare yourself with your colleagues.
The worst that can happen is that they say no.

# memories
summers at the lake:
When I was nine, we spent the whole summer at my uncle's lake house.
My brothers taught me how to swim there, although they denied it later.
I can still smell the wet wood of the old boat.
the first job:
My first job was in a shoe store, and I was terrible at it.
They paid me in cash every Friday, and I felt rich.
I still remember the woman who bought the same boots three times.
a teacher:
She was the only teacher who never raised her voice.
He used to read to us when it rained.
I wish I'd told her how much it meant to me.

# announcements and signs
a closed road:
The road will be closed from Monday to Wednesday.
Please use the entrance on Hill Street while we're repairing the gate.
We apologize for the delay and thank you for your patience.
the swimming pool:
Children under ten must be with an adult.
The pool opens at seven, except on Sundays.
Please shower before you enter the water.
a lost cat:
Our gray cat has been missing since Tuesday night.
She's shy, but she comes if you shake a box of food.
If you've seen her, please call us at any time.

# things that people say about their work
a busy kitchen:
We served two hundred people last night, and nothing went wrong until dessert.
The new cook is fast, but he doesn't clean up after himself.
I'm on my feet for ten hours, and then I go home and cook for my family.
an office move:
They've put my desk next to the printer.
Half of our boxes are still in the old building.
It's quieter here than it was downtown, but the coffee is worse.
night shifts:
I've worked nights for six years, and you never really get used to it.
The hospital is quiet around four in the morning.
My neighbors think I don't have a job, because I'm home all day.

# answers in a support chat
a forgotten password:
You can reset your password on the login page. We'll send you a link by e-mail.
If the message doesn't arrive, please look in your spam folder.
The link works for one hour, and then you'll need a new one.
returning shoes:
You can return the shoes within thirty days, as long as they haven't been worn.
We'll send your money back as soon as they've arrived.
Do you still have the box they came in?
a broken screen:
I'm sorry to hear that your screen is broken. When did it happen?
Your warranty covers this, so the repair won't cost you anything.
It usually takes five days until it's back with you.

# descriptions of people, places and things
my neighbor:
He's a quiet man who's always fixing something in his garage.
Their garden is full of flowers that nobody else in our street can grow.
She walks her dog at six every morning, no matter what the weather's like.
a small village:
The village has one shop, two churches and more cows than people.
On clear days you can see the mountains from the school.
Its streets are so narrow that buses can't get through.
an old watch:
The watch belonged to my grandfather, and it still runs.
There's a scratch on its glass, but I don't want to have it repaired.
It loses about two minutes a week.
"""


def _read(text: str) -> tuple[Kind, ...]:
    kinds = []
    for part in text.strip().split("\n# "):
        what, *lines = part.removeprefix("# ").strip().split("\n")
        groups = [lines[i : i + 4] for i in range(0, len(lines), 4)]
        kinds.append(Kind(what, tuple((topic.rstrip(":"), "\n".join(texts)) for topic, *texts in groups)))
    return tuple(kinds)


KINDS = _read(_KINDS)
