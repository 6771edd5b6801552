"""The words of the embedded corpus, and the sentences that they can make: tables, which grammar.py reads.

Entries are "English=German", in rows that end in ";".
"""

# kind: adjectives: English[/plural]=article singular plural [weak], where "~" repeats the singular; "-" is a
# noun without plural, "pl" one without singular
NOUNS = """
person: old young tall friendly clever famous polite: man/men=der Mann Männer, woman/women=die Frau ~en,
  teacher=der Lehrer ~, doctor=der Arzt Ärzte, nurse=die Krankenschwester ~n, student=der Student ~en weak,
  waiter=der Kellner ~, farmer=der Bauer ~n weak, tourist=der Tourist ~en weak, engineer=der Ingenieur ~e,
  actress=die Schauspielerin ~nen, cook=der Koch Köche, singer=die Sängerin ~nen,
  police officer=der Polizist ~en weak;
youth: little clever polite curious friendly: child/children=das Kind ~er, boy=der Junge ~n weak,
  girl=das Mädchen ~, pupil=der Schüler ~;
relative: nice friendly clever funny polite: mother=die Mutter -, father=der Vater -,
  brother=der Bruder Brüder, uncle=der Onkel ~, sister=die Schwester ~n, aunt=die Tante ~n,
  son=der Sohn Söhne, daughter=die Tochter Töchter, grandmother=die Großmutter -, grandfather=der Großvater -,
  friend=der Freund ~e, parents=pl Eltern, neighbour=der Nachbar ~n weak, colleague=der Kollege ~n weak;
pet: big small old young black white brown hungry: dog=der Hund ~e, cat=die Katze ~n, rabbit=das Kaninchen ~,
  mouse/mice=die Maus Mäuse, bird=der Vogel Vögel;
animal: big small old young black white brown hungry: horse=das Pferd ~e, cow=die Kuh Kühe, duck=die Ente ~n,
  bear=der Bär ~en weak, elephant=der Elefant ~en weak;
food: fresh delicious sweet cheap expensive: apple=der Apfel Äpfel, pear=die Birne ~n, banana=die Banane ~n,
  orange=die Orange ~n, cake=der Kuchen ~, roll=das Brötchen ~, bread=das Brot -, cheese=der Käse -;
dish: fresh delicious cheap expensive: soup=die Suppe ~n, rice=der Reis -, fish=der Fisch -,
  meat=das Fleisch -, potatoes=pl Kartoffeln, eggs=pl Eier;
drink: cold fresh delicious expensive cheap: milk=die Milch -, water=das Wasser -, juice=der Saft -,
  wine=der Wein -, beer=das Bier -, coffee=der Kaffee -, tea=der Tee -;
text: interesting boring long short funny difficult important new: book=das Buch Bücher, letter=der Brief ~e,
  story=die Geschichte ~n, poem=das Gedicht ~e, report=der Bericht ~e, novel=der Roman ~e,
  article=der Artikel ~, message=die Nachricht ~en;
clothes: red blue green white black grey new old warm elegant expensive cheap: coat=der Mantel Mäntel,
  jacket=die Jacke ~n, shirt=das Hemd ~en, jumper=der Pullover ~, suit=der Anzug Anzüge,
  T-shirt=das T-Shirt ~s, gloves=pl Handschuhe, shoes=pl Schuhe;
gift: red blue green white black new old small beautiful expensive cheap: hat=der Hut Hüte, watch=die Uhr ~en,
  scarf/scarves=der Schal ~s, bag=die Tasche ~n, ball=der Ball Bälle, umbrella=der Regenschirm ~e,
  ring=der Ring ~e, dress=das Kleid ~er, skirt=der Rock Röcke, doll=die Puppe ~n, picture=das Bild ~er;
device: new old modern expensive cheap small loud: radio/radios=das Radio ~s, computer=der Computer ~,
  television=der Fernseher ~, camera=die Kamera ~s, washing machine=die Waschmaschine ~n;
vehicle: red blue green black new old fast slow expensive cheap small big: car=das Auto ~s, boat=das Boot ~e,
  bicycle=das Fahrrad Fahrräder, motorbike=das Motorrad Motorräder;
transport: old modern fast slow: train=der Zug Züge, bus=der Bus ~se, tram=die Straßenbahn ~en,
  ship=das Schiff ~e;
lying: new old small beautiful: key=der Schlüssel ~, knife/knives=das Messer ~, spoon=der Löffel ~,
  pencil=der Bleistift ~e, ticket=die Fahrkarte ~n, map=die Landkarte ~n, photo/photos=das Foto ~s,
  newspaper=die Zeitung ~en;
standing: new old small big beautiful heavy: cup=die Tasse ~n, plate=der Teller ~, glass=das Glas Gläser,
  bottle=die Flasche ~n, lamp=die Lampe ~n, suitcase=der Koffer ~;
furniture: new old big small heavy comfortable brown white beautiful: table=der Tisch ~e,
  chair=der Stuhl Stühle, bed=das Bett ~en, sofa=das Sofa ~s, desk=der Schreibtisch ~e,
  cupboard=der Schrank Schränke, bench=die Bank Bänke;
opening: big small old heavy: door=die Tür ~en, window=das Fenster ~, gate=das Tor ~e;
room: big small bright dark dirty cold: kitchen=die Küche ~n, bathroom=das Badezimmer ~, office=das Büro ~s,
  bedroom=das Schlafzimmer ~, living room=das Wohnzimmer ~, flat=die Wohnung ~en;
building: old big new modern beautiful famous: house=das Haus Häuser, tower=der Turm Türme,
  church=die Kirche ~n, bridge=die Brücke ~n, castle=das Schloss Schlösser;
event: big long important expensive: party=die Party ~s, wedding=die Hochzeit ~en, trip=die Reise ~n,
  concert=das Konzert ~e, game=das Spiel ~e, exam=die Prüfung ~en;
idea: new important difficult interesting: question=die Frage ~n, answer=die Antwort ~en, task=die Aufgabe ~n,
  rule=die Regel ~n, plan=der Plan Pläne, problem=das Problem ~e
"""
# kinds: their usual determiners, where "own" is a possessive; other kinds take any
USUAL = """
person youth pet animal building food dish drink: the the a a this; relative: own;
transport opening room event idea: the the the this own; other: the the the a a a this own own
"""
ADJECTIVES = """
old=alt, young=jung, tall=groß, big=groß, little=klein, small=klein, new=neu, nice=nett, curious=neugierig,
friendly=freundlich, clever=klug, famous=berühmt, polite=höflich, hungry=hungrig, black=schwarz, white=weiß,
brown=braun, red=rot, blue=blau, green=grün, grey=grau, beautiful=schön, fresh=frisch, sweet=süß,
cheap=billig, expensive=teuer, cold=kalt, warm=warm, delicious=lecker, interesting=interessant,
boring=langweilig, long=lang, short=kurz, funny=lustig, difficult=schwierig, important=wichtig,
elegant=elegant, dirty=schmutzig, modern=modern, loud=laut, fast=schnell, slow=langsam, bright=hell,
dark=dunkel, heavy=schwer, comfortable=bequem
"""
# group [preposition+]case kinds of object: English[/past[/-ing]]=German [third person] [ist] [participle];
# "_" is the place of the object, "|" follows what closes a German main clause
VERBS = """
deed acc food dish: eat/ate=essen isst gegessen; deed acc dish: cook=kochen;
deed acc drink: drink/drank=trinken getrunken; deed acc dish drink: order=bestellen;
deed acc text: read/read=lesen liest gelesen, bring _ back/brought=zurück|bringen gebracht,
  write/wrote=schreiben geschrieben, translate=übersetzen übersetzt, copy=ab|schreiben geschrieben;
deed acc clothes: wear/wore=tragen trägt getragen, put on/put=an|ziehen gezogen, try on=an|probieren,
  take off/took=aus|ziehen gezogen; deed acc clothes vehicle: wash=waschen wäscht gewaschen;
deed acc clothes lying: pack=ein|packen; deed acc device: turn on=ein|schalten, turn off=aus|schalten;
deed acc device vehicle: repair=reparieren;
deed acc food clothes gift device vehicle furniture: buy/bought=kaufen;
deed acc gift device vehicle furniture: sell/sold=verkaufen;
deed acc gift lying: look for=suchen, take _ along/took=mit|nehmen nimmt genommen;
deed acc standing furniture: carry=tragen trägt getragen; deed acc event: prepare=vor|bereiten;
deed acc food text standing: bring _ along/brought=mit|bringen gebracht;
deed acc opening: open=öffnen, close=schließen geschlossen; deed acc room: clean=putzen, tidy up=auf|räumen;
deed acc people: visit=besuchen, meet/met=treffen trifft getroffen, call=an|rufen gerufen,
  invite=ein|laden lädt geladen, pick _ up=ab|holen, greet=begrüßen;
deed acc building: visit=besichtigen, look at=an|sehen sieht gesehen; deed acc pet animal: feed/fed=füttern;
deed acc pet animal building: photograph=fotografieren, draw/drew=zeichnen;
deed acc idea: explain=erklären, discuss=besprechen bespricht besprochen,
  write down/wrote=auf|schreiben geschrieben;
deed dat people: help=helfen hilft geholfen, thank=danken, follow=folgen ist, answer=antworten,
  listen to=zu|hören, watch=zu|sehen sieht gesehen; deed auf+acc people transport: wait for=warten;
deed auf+acc people: look after=auf|passen;
deed über+acc event text idea: talk about=sprechen spricht gesprochen;
deed mit+dat people: talk to=sprechen spricht gesprochen, dance with=tanzen, play with=spielen;
deed für+acc people: work for=arbeiten, cook for=kochen;
deed -: go out/went=aus|gehen ist gegangen, go shopping/went=einkaufen_|gehen ist gegangen,
  play the piano=Klavier_|spielen, watch television=fern|sehen sieht gesehen,
  come along/came=mit|kommen ist gekommen, stay at home=zu_Hause_|bleiben ist geblieben,
  play football=Fußball_|spielen, go for a walk/went=spazieren_|gehen ist gegangen,
  ride a bicycle/rode=Rad_|fahren fährt ist gefahren; state acc food dish drink: like=mögen gemocht;
state acc gift device vehicle furniture: need=brauchen;
state acc text idea: understand/understood=verstehen verstanden;
state acc people: know/knew=kennen gekannt, love=lieben; state dat people: trust=vertrauen, believe=glauben;
state an+acc people event: think of/thought=denken gedacht; state von+dat event: dream of=träumen;
mishap acc gift lying: find/found=finden gefunden, lose/lost=verlieren verloren,
  forget/forgot/forgetting=vergessen vergisst vergessen;
mishap acc people pet animal building: see/saw/seeing=sehen sieht gesehen;
leisure -: work=arbeiten, dance=tanzen, sing/sang=singen gesungen, wait=warten, read/read=lesen liest gelesen,
  play cards=Karten_|spielen, learn German=Deutsch_|lernen;
errand -: go home/went=nach_Hause_|gehen ist gegangen, come back/came=zurück|kommen ist gekommen;
routine -: get up/got=auf|stehen ist gestanden, wake up/woke=auf|wachen ist, have breakfast/had=frühstücken,
  fall asleep/fell=ein|schlafen schläft ist geschlafen, go to bed/went=ins_Bett_|gehen ist gegangen;
timetable -: leave/left=ab|fahren fährt ist gefahren, arrive=an|kommen ist gekommen;
journey -: travel/travelled/travelling=fahren fährt ist gefahren; flight -: fly/flew=fliegen ist geflogen;
walk -: go/went=gehen ist gegangen, run/ran=rennen ist gerannt; put acc lying: put/put=legen;
put acc standing: put/put=stellen; lying -: =liegen gelegen; standing -: =stehen gestanden;
be -: =sein ist gewesen;
posture -: sleep/slept=schlafen schläft geschlafen, sit/sat=sitzen gesessen, lie/lay/lying=liegen gelegen;
claim -: say/said=sagen, believe=glauben, hope=hoffen, know/knew=wissen gewusst, think/thought=denken gedacht;
attempt -: try=versuchen, promise=versprechen verspricht versprochen,
  begin/began/beginning=an|fangen fängt gefangen;
giving acc food gift: give/gave=geben gibt gegeben, bring/brought=bringen gebracht, buy/bought=kaufen;
giving acc gift: show=zeigen, lend/lent=leihen geliehen, send/sent=schicken; trade acc: buy/bought=kaufen;
have -: have/had=haben gehabt; cost -: cost/cost=kosten; live -: live=wohnen
"""
PHRASES = """
present: today=heute, this evening=heute Abend, now=jetzt, this afternoon=heute Nachmittag,
  at the moment=im Moment;
habit: every day=jeden Tag, every morning=jeden Morgen, every evening=jeden Abend, on Mondays=montags,
  on Fridays=freitags, on Sundays=sonntags, at the weekend=am Wochenende;
early: often=oft, always=immer, sometimes=manchmal, never=nie, usually=meistens, rarely=selten;
past: yesterday=gestern, last week=letzte Woche, this morning=heute Morgen, yesterday evening=gestern Abend,
  last Monday=letzten Montag, last Saturday=letzten Samstag, two days ago=vor zwei Tagen,
  an hour ago=vor einer Stunde;
future: tomorrow=morgen, next week=nächste Woche, tomorrow morning=morgen früh, tomorrow evening=morgen Abend,
  next Tuesday=nächsten Dienstag, in two hours=in zwei Stunden, the day after tomorrow=übermorgen;
mood: tired=müde, ill=krank, sad=traurig, nervous=nervös, hungry=hungrig, thirsty=durstig;
feeling: happy=glücklich, sad=traurig, angry=wütend, surprised=überrascht, disappointed=enttäuscht;
city: Berlin=Berlin, Hamburg=Hamburg, Munich=München, Cologne=Köln, Vienna=Wien, Zurich=Zürich, Rome=Rom,
  Paris=Paris, London=London, Italy=Italien, Spain=Spanien, France=Frankreich, Germany=Deutschland,
  Austria=Österreich; means: by train=mit dem Zug, by bus=mit dem Bus, by car=mit dem Auto;
spot: on=auf, under=unter, behind=hinter, next to=neben, in front of=vor;
degree: very=sehr, rather=ziemlich, not very=nicht sehr; time: time=Zeit;
busy: no time=keine Zeit, little time=wenig Zeit;
fault: too expensive=zu teuer, too small=zu klein, too big=zu groß, too old=zu alt, too heavy=zu schwer;
more: older=älter, bigger=größer, cheaper=billiger, more expensive=teurer, heavier=schwerer,
  more beautiful=schöner;
leisure: in the kitchen=in der Küche, in the garden=im Garten, in the forest=im Wald, in the park=im Park,
  at the cinema=im Kino, at the theatre=im Theater, at the restaurant=im Restaurant, at the zoo=im Zoo,
  at the library=in der Bibliothek, at the station=am Bahnhof, at the bus stop=an der Haltestelle,
  at the lake=am See, at the market=auf dem Markt, on the beach=am Strand;
walk: into the kitchen=in die Küche, into the garden=in den Garten, into the forest=in den Wald,
  to the park=in den Park, to the cinema=ins Kino, to the theatre=ins Theater,
  to the restaurant=ins Restaurant, to the zoo=in den Zoo, to the library=in die Bibliothek,
  to the station=zum Bahnhof, to the bus stop=zur Haltestelle, to the lake=zum See,
  to the market=auf den Markt, to the beach=an den Strand
"""
NUMBERS = """
zero=null, one=eins, two=zwei, three=drei, four=vier, five=fünf, six=sechs, seven=sieben, eight=acht,
nine=neun, ten=zehn, eleven=elf, twelve=zwölf, thirteen=dreizehn, fourteen=vierzehn, fifteen=fünfzehn,
sixteen=sechzehn, seventeen=siebzehn, eighteen=achtzehn, nineteen=neunzehn, twenty=zwanzig, thirty=dreißig,
forty=vierzig, fifty=fünfzig, sixty=sechzig, seventy=siebzig, eighty=achtzig, ninety=neunzig
"""
# name or gender=English subject and object; German nominative, accusative, dative; person; gender
PRONOUNS = """
I=I me ich mich mir 0 -, you=you you du dich dir 1 -, we=we us wir uns uns 3 -, m=he him er ihn ihm 2 m,
f=she her sie sie ihr 2 f, p=they them sie sie ihnen 5 p, who=who who wer wen wem 2 -,
it m=it it er ihn ihm 2 m, it f=it it sie sie ihr 2 f, it n=it it es es ihm 2 n
"""
WOMEN, MEN = "Anna Marie Laura Emma Julia Clara Lena Nina", "Paul Tom Ben David Martin Simon Peter Oskar"
# the forms for ich, du, er, wir, ihr, sie
IRREGULAR = """
sein=bin bist ist sind seid sind, haben=habe hast hat haben habt haben,
wissen=weiß weißt weiß wissen wisst wissen, werden=werde wirst wird werden werdet werden,
mögen=mag magst mag mögen mögt mögen, be=am are is are are are, können=kann kannst kann können könnt können,
müssen=muss musst muss müssen müsst müssen, do=do do does do do do,
wollen=will willst will wollen wollt wollen, dürfen=darf darfst darf dürfen dürft dürfen,
sollte=sollte solltest sollte sollten solltet sollten, möchte=möchte möchtest möchte möchten möchtet möchten
"""
# mode=English auxiliary, what stands between it and the verb, German modal
MODES = """
present=be - -, habit=do - -, past=did - -, future=will - werden, can=can - können, should=should - sollte,
must=do have_to müssen, want=do want_to wollen, wish=would like_to möchte, may=be allowed_to dürfen
"""
# nominative, accusative, dative and genitive: of the masculine, the feminine, the neuter and the plural
ENDINGS = """
der: der den dem des: die die der der: das das dem des: die die den der;
dies: er en em es: e e er er: es es em es: e e en er; ein: - en em es: e e er er: - - em es: e e en er;
none: - - - -: - - - -: - - - -: - - - -; weak: e en en en: e e en en: e e en en: en en en en;
mixed: er en en en: e e en en: es es en en: en en en en;
strong: er en em en: e e er er: es es em en: e e en er
"""
# determiner=English singular and plural, German, its endings, those it leaves to the adjective
DETERMINERS = """
the=the the - der weak, this=this these dies dies weak, a=a - ein ein mixed, bare=- - - none strong,
many=- many viel dies strong, not a=a - kein ein mixed, not bare=- - kein ein mixed, whose=- - - der weak,
my=my my mein ein mixed, your=your your dein ein mixed, his=his his sein ein mixed, her=her her ihr ein mixed,
our=our our unser ein mixed, their=their their ihr ein mixed
"""
CONTRACTIONS = "in dem=im, in das=ins, an dem=am, zu dem=zum, zu der=zur, von dem=vom"

# ---- Constructions -----------------------------------------------------------------------------------------

# share | English | German | ingredients: name=method of the author and its arguments, which are ingredients,
# words to choose from (a/b, or any MODE) and phrases of some kind (*kind)
CONSTRUCTIONS = """
60 | {a}. | {a:2}. | a=act any present
60 | {a}. | {a:2}. | a=act any habit
60 | {a}. | {a:2}. | a=act any past
60 | {a}. | {a:2}. | a=act any can/should/must/want/wish/may
30 | {a}. | {a:2}. | a=act any future
75 | {t.english} {a}. | {t.german} {a:1}. | m=one present/present/habit/past/future, t=some m, a=plain m
40 | {a}. | {a:2}. | x=person, a=act any present/past/future/can/must/want/may x not
20 | {a}. | {a:2}. | x=person, a=act state habit x not
50 | {a:?}? | {a:1}? | a=act any MODE
20 | why {a:?}? | warum {a:1}? | a=act any present/habit/past/must/want
20 | when {a:?}? | wann {a:1}? | a=plain past/future/can/must/want
12 | where {a:?}? | wo {a:1}? | b=act mishap past, a=dated b
25 | what {a:?}? | was {a:1}? | a=gap present/past/future/can/want
20 | {a}? | {a:2}? | a=act any present/past/future/can/want who
50 | {b} that {a}. | {b:2}, dass {a:end}. | x=person, b=be claim x, y=person x, a=act any present/habit/past y
25 | I do not know whether {a}. | ich weiß nicht, ob {a:end}. | a=act any present/habit/past/future/can/want
25 | do you know why {a}? | weißt du, warum {a:end}? | a=act any present/habit/past/future/must/want
15 | nobody knows when {a}. | niemand weiß, wann {a:end}. | a=plain past/future/must/can
30 | {b} because {a}. | {b:2}, weil {a:end}. | x=person, b=be be x *feeling, y=person x, a=act any past y
20 | {b} because {a}. | {b:2}, weil {a:end}. | x=known, b=act errand present x, p=again x, a=plain must/want p
20 | {b} because {a}. | {b:2}, weil {a:end}. | x=known, b=be have x *busy, p=again x, a=plain must/want p
30 | while {a}, {b}. | während {a:end}, {b:1}. | x=person, a=plain present x, y=person x, b=plain present y
20 | although {a}, {b}. | obwohl {a:end}, {b:1}. | x=known, a=be be x *mood, p=again x, b=plain present/must p
20 | if {a}, {b}. | wenn {a:end}, {b:1}. | x=known, a=be have x *time, p=again x, b=plain future/can p
15 | if it rains tomorrow, {b}. | wenn es morgen regnet, {b:1}. | b=plain future/must/can
30 | {a}, but {b}. | {a:2}, aber {b:2}. | x=known, a=plain want x, p=again x, b=plain must p
30 | {a}, but {b}. | {a:2}, aber {b:2}. | x=thing goods the, a=trade x, p=again x, b=be be p *fault
30 | {a}. | {a:2}. | x=doing present/past/must, q=quality x, a=be be x q
25 | {b} to {a:to}. | {b:2}, {a:zu}. | x=person, c=act attempt present x, b=dated c, a=plain future x
50 | {a}. | {a:2}. | a=act giving MODE
20 | {a}. | {a:2}. | x=thing pet the, a=act posture present/past x
15 | {a}. | {a:2}. | k=one lying/standing, x=thing k the, b=act k present x, a=dated b
25 | {a}. | {a:2}. | a=act put present/past/must
60 | {a}. | {a:2}. | a=act walk/walk/journey/flight MODE
35 | {a}. | {a:2}. | a=act leisure MODE
30 | {a}. | {a:2}. | b=act routine habit/past/future/must, a=dated b *clock
25 | {a}. | {a:2}. | x=thing transport the, b=act timetable habit/past/future x, a=dated b *clock
3 | it is {t.english}. | es ist {t.german}. | t=some hour
25 | {a}. | {a:2}. | x=person, n=counted text/gift/standing/lying, a=be have x n
20 | there are {n.english} {p.english}. | {p.german} gibt es {n.german}. | p=some leisure, n=counted person
25 | {a}. | {a:2}. | x=thing clothes/gift/standing/furniture the, a=be cost x *price
8 | {a}. | {a:2}. | x=thing relative, a=be be x *age
8 | {a}. | {a:2}. | x=person, a=be live x *home
35 | {a}. | {a:2}. | x=thing goods the, q=compared x, a=be be x q
20 | {a}. | {a:2}. | x=thing goods the, q=quality x, a=be be x q
20 | {a}. | {a:2}. | x=owned, q=quality x, a=be be x q
4 | it is raining {c.english} {t.english}. | {t.german} regnet es {c.german}. | c=some home, t=some present
"""
