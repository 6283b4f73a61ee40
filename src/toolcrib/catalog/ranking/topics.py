"""Topics: the words of one field of life or work, which point to one another. One topic a line, single words.

Written from general knowledge to cover the matters that tools are made for (which matters was read off the labelled
development queries as well; the words were not).
"""

from __future__ import annotations

__all__ = ["TOPICS"]

TOPICS = """
house home apartment rent lease property realestate estate mortgage landlord tenant condo bedroom housing renting
travel trip flight hotel vacation tourism tourist itinerary destination sightseeing attraction airline visa passport
restaurant food dinner lunch breakfast cuisine menu chef reservation eat takeaway delivery grocery
recipe cook food ingredient kitchen bake meal dish grocery
diet nutrition calorie protein meal weight healthy food vitamin vegan
fitness workout exercise gym muscle running yoga training cardio
health medical doctor hospital clinic patient disease symptom treatment medicine therapy wellness diagnosis
mental stress anxiety meditation therapy mindfulness depression
weather forecast temperature rain snow wind humidity storm climate sunny uv
finance stock investment invest portfolio market trading trader dividend equity fund bond financial nasdaq bank
crypto cryptocurrency bitcoin blockchain wallet nft token ethereum defi trading
bank account loan credit interest debt mortgage savings finance deposit
tax income accounting deduction irs revenue
money budget saving expense spend finance
insurance claim premium coverage
shop product buy store price purchase cart retailer order brand ecommerce shopping deal online
fashion clothes style outfit dress shoe jewelry wardrobe haircut hairstyle trend
beauty skincare makeup cosmetic hair perfume
gift birthday present anniversary christmas wedding
job career resume interview hire employment salary internship vacancy recruiter candidate talent employer position
talent engineer freelancer developer candidate hire contractor
school student course learn class university education lecture exam homework teacher degree tutorial college academic
language translate vocabulary grammar english spanish french chinese pronunciation phrase word
book novel read author library literature fiction bestseller
research paper scholar academic journal citation publication arxiv scientific study literature pubmed
science physics chemistry biology experiment laboratory
math equation algebra calculus geometry solve formula compute
news current headline journalist breaking politics article event world
politics parliament election government senate congress policy vote minister legislation
law legal lawyer attorney court contract patent compliance regulation statute
music song artist playlist album concert lyrics singer band spotify melody
movie film actor cinema show tv series episode netflix streaming director imdb
video youtube clip footage animation channel film stream
image picture photo draw art design illustration generate visual graphic
art painting museum artist gallery artwork exhibition sculpture
game play player gaming steam puzzle quest roleplaying
sport football basketball soccer baseball league team player match score tournament nba nfl cricket tennis
car vehicle drive automobile dealer engine fuel petrol parking mileage hybrid suv
fuel gas petrol gasoline diesel
traffic road speed camera driving congestion
transport train bus subway station ticket commute metro transit railway
map route direction navigation location distance driving
flight airline airport aircraft departure arrival
delivery package shipping courier parcel shipment tracking
event concert show ticket festival theater broadway performance
restaurant bar cafe wine beer sake drink
plant garden soil flower agriculture crop farm
animal pet dog cat bird wildlife species veterinary
space planet star nasa astronomy satellite mars galaxy rocket iss
astrology horoscope zodiac birth tarot
children kid family parent baby story
charity donate nonprofit volunteer organization
marketing advertising ad campaign seo brand social audience promotion lead
seo keyword website ranking traffic backlink search optimization
advertising ad ppc campaign google
social instagram twitter facebook tiktok hashtag post influencer
website web page html domain hosting landing blog
email inbox newsletter outreach mail
sales lead crm customer prospect pipeline
company startup business competitor industry market revenue
product review rating customer comparison
code programming developer software python javascript github debug
data dataset sql query database analytics
chart graph diagram visualization plot flowchart mindmap
presentation slide deck powerpoint
document pdf file page summarize
writing essay write grammar rewrite paraphrase plagiarism editor text
poem story creative fiction character
speech voice audio text pronunciation
podcast episode audio listen
task todo reminder productivity note planner deadline
calendar schedule meeting appointment event
security vulnerability hack malware password threat attack
cloud server deploy aws kubernetes hosting
device smart home light thermostat sensor
energy electricity solar power carbon emission
environment climate carbon sustainability pollution emission
air quality pollution aqi
religion bible quran verse prayer scripture
history historical ancient century
philosophy ethics wisdom
dating relationship love romantic
wedding marriage bride
personality mbti test type psychology
dream interpretation meaning
covid virus vaccine pandemic flu
drug medication dosage prescription pharmacy
child education kid school
real estate property housing
coupon discount promo deal voucher saving
hotel room stay accommodation check
image background remove photo edit
logo brand design
qr code scan barcode
browser click page navigate element selector
file folder path directory
git commit branch merge repository pull
chat message channel slack discord telegram
knowledge graph entity relation observation memory
house home apartment property realestate mansion cottage villa condo bedroom bathroom neighborhood buyer seller
rent lease tenant landlord apartment roommate housing flat studio deposit
finance market economy economic inflation interest rate stock share earnings revenue quarterly dividend forex
finance asset wealth retirement pension fund hedge etf bond yield valuation capital investor invest
product item goods gadget laptop smartphone headphone camera shoe furniture appliance electronics brand retail buy
law legal rights liability lawsuit court divorce custody copyright trademark patent contract criminal penalty
weather humidity sunrise sunset celsius fahrenheit degree snowfall rainfall wind umbrella climate heatwave hurricane
search internet web google online information fact knowledge wikipedia browse
news current affair breaking latest headline election politics world global event happening
course learn online lesson beginner certificate skill curriculum programming class educational training workshop
academic paper scholar thesis literature citation peer journal arxiv study review theory hypothesis experiment
travel trip tourist attraction landmark beach museum hiking backpacking guide visit explore adventure destination
hotel booking room resort hostel airbnb stay checkin accommodation
trip rental car cruise transfer airport package itinerary
map location nearby direction route distance address coordinate navigation geography place
website page blog site publish deploy host landing portfolio html css build
seo google rank keyword backlink traffic serp optimize website visibility audit
repository github project open code library framework repo commit developer
rewrite polish paraphrase tone fluent sentence wording grammar essay paragraph humanize
company business corporate startup competitor founder ceo headquarters employee industry profile
currency exchange dollar euro yen pound rate convert money
job resume interview hiring recruiter remote position vacancy apply salary career internship cover
resume cv experience skill template job
database sql query table data schema
astrology horoscope zodiac compatibility birth chart sign
image photo picture draw art generate edit background logo illustration artwork poster
apparel shirt hoodie design print custom clothing
video youtube summarize transcript clip tutorial vlog
music song playlist artist album genre lyrics band concert melody tune
pdf document file page summarize chat extract ebook
diagram flowchart mindmap chart visualize graph mermaid
data chart visualize dataset csv statistics analysis
gift recommend occasion birthday present idea
game play chess quiz trivia puzzle guess fun
child parent kid story bedtime school family
pet dog cat breed veterinarian animal
health symptom doctor disease treatment medical diagnosis clinic therapy
fitness workout exercise muscle strength training yoga routine
diet calorie nutrition meal weight protein healthy fat carb sugar
recipe ingredient cook dish dinner meal dessert vegetarian cuisine
restaurant reservation dine table dinner cuisine food
movie film show series watch stream actor director trailer cinema
book novel author read fiction literature bestseller
sport team league score match player tournament standing fixture
email draft write outreach recipient subject newsletter
reminder todo task note list schedule calendar
translation language speak learn phrase pronounce vocabulary
charity nonprofit donate volunteer cause fundraiser
security vulnerability scan website malware exploit penetration
qr code link url shorten
tax sales rate state address
podcast episode transcript listen audio
poem poetry verse rhyme lyric
philosophy quote wisdom religion scripture
vehicle car truck dealer inventory used price sedan suv
train subway bus timetable station line schedule commute fare
flight airline ticket airport fare departure depart
job freelance talent engineer designer hire contractor
crypto coin token price market blockchain wallet exchange
"""
